"""A whole Flower deployment on this machine: processes, keys, what they leave behind."""
