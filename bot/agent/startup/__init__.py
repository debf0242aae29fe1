"""Run the steps of a machine's start-up that GPU Shopper sends in the answer to a check-in."""
