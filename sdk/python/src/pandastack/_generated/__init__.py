"""What tools/generate.py makes of the server's description of itself."""
