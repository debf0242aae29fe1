#!/bin/sh
# Run the commands of a file, one on each GPU: run_queue.sh COMMANDS FOLDER [GPUS]
# COMMANDS has one command a line; empty lines and those that begin with # are left out.
# FOLDER gets a folder for each command, named by its number. Started again, it continues with what has no result.
# GPUS is how many there are; without it nvidia-smi is asked.
set -u

if [ $# -lt 2 ] || [ ! -r "$1" ]; then
  echo "usage: run_queue.sh COMMANDS FOLDER [GPUS]" >&2
  exit 64
fi
commands=$1 folder=$2
here=$(cd "$(dirname "$0")" && pwd)
run_one=${RUN_ONE:-$here/run_one.sh}
gpus=${3:-$(nvidia-smi --list-gpus 2>/dev/null | wc -l)}
[ "$gpus" -ge 1 ] || gpus=1
mkdir -p "$folder" || exit 73
grep -v -e '^[[:space:]]*#' -e '^[[:space:]]*$' "$commands" >"$folder/commands"
total=$(wc -l <"$folder/commands")

# Each GPU takes the next command that nobody took: a folder can be made once only.
rm -rf "$folder/taken"
mkdir "$folder/taken" || exit 73
work() {
  number=0
  while IFS= read -r command; do
    number=$((number + 1))
    mkdir "$folder/taken/$number" 2>/dev/null || continue
    sh "$run_one" "$folder/$number" "$1" sh -c "$command" </dev/null
    echo "command $number of $total on GPU $1: exit code $?"
  done <"$folder/commands"
}
gpu=0
while [ "$gpu" -lt "$gpus" ]; do
  work "$gpu" &
  gpu=$((gpu + 1))
done
wait

failed=0 number=0
while [ "$number" -lt "$total" ]; do
  number=$((number + 1))
  [ "$(cat "$folder/$number/exit_code" 2>/dev/null)" = 0 ] || failed=$((failed + 1))
done
echo "$((total - failed))/$total done, $failed failed"
[ "$failed" -eq 0 ]
