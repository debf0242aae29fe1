"""Run the commands of a job's queue, one on each GPU, and keep the result of each exactly once."""
