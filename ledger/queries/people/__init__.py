"""Read and write what belongs to people on machines: their SSH keys, and offers to transfer sessions."""
