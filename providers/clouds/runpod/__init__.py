"""RunPod: REST v2 for everything, GraphQL for the balance only, which v2 does not have."""
