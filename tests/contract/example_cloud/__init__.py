"""A sixth cloud, to show what one needs: an adapter, a sandbox, a profile and a line in the registry."""
