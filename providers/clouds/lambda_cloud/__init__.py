"""Lambda: whole virtual machines at fixed prices, no stop, and room for one launch in twelve seconds."""
