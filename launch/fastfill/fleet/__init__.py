"""A cluster of servers: what runs on each host, and who decides what happens to it.

Standard library only: the package is bundled into one file (``bundle``) that runs on hosts with nothing but Python.
"""
