"""What somebody asks for, one file a facet: its fields, words, keys, checks and texts. `facets` lists them."""
