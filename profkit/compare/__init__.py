"""Two sides to one answer: did the change help, by how much, how sure is that, and why."""
