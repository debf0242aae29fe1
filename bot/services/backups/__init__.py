"""Back up one deployment into an archive, check an archive, and restore one."""
