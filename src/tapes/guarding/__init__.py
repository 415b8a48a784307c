"""What keeps a process off the network, in files that need nothing but the standard library.

A child process may run another Python, without this project; so nothing in this folder imports
from outside of it, and imports inside are relative.
"""
