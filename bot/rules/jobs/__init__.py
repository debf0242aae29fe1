"""What somebody asks for: a job, its facets, and what is checked, read, shown and planned of them."""
