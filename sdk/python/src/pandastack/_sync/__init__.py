# Made by tools/unasync.py from _async/__init__.py. Do not edit.

"""The sync surface, made of the async one by tools/unasync.py."""
