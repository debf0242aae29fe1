"""RunPod, served locally: REST v2 and GraphQL on one account, with the cloud's own manners and troubles."""
