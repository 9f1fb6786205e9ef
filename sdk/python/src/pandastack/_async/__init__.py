"""The async surface, written by hand. tools/unasync.py makes the sync one of it."""
