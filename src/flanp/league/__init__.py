"""The straggler league: every way to live with slow clients, tuned, on one clock."""
