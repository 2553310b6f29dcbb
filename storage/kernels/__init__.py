"""The hot loops: scan headers, decode records, checksum ranges; twins behind one Protocol."""
