"""What is peculiar to each cloud, as pages with checked fields."""
