#!/bin/sh
# Run one command on one GPU and keep its result: run_one.sh FOLDER GPU COMMAND...
# FOLDER gets its output (log), its exit code (exit_code), and when it began and ended (times).
# A command that has its exit code is not run again.
set -u

if [ $# -lt 3 ]; then
  echo "usage: run_one.sh FOLDER GPU COMMAND..." >&2
  exit 64
fi
folder=$1 gpu=$2
shift 2
mkdir -p "$folder" || exit 73
[ ! -f "$folder/exit_code" ] || exit "$(cat "$folder/exit_code")"

began=$(date -u +%Y-%m-%dT%H:%M:%SZ)
CUDA_VISIBLE_DEVICES=$gpu "$@" >"$folder/log" 2>&1
code=$?
printf '%s %s\n' "$began" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" >"$folder/times"
# The exit code comes last and in one step: a run that was cut off has none, and runs again.
printf '%s\n' "$code" >"$folder/exit_code.new" && mv "$folder/exit_code.new" "$folder/exit_code"
exit "$code"
