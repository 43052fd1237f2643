"""The paper: its theory as code, and its experiments by command."""
