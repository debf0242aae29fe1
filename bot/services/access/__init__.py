"""Who may do what: authorization, delegation, API keys and SSH keys."""
