"""What all readers say of the same damaged directories."""
