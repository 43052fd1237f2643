"""One configuration for each figure and table of the paper."""
