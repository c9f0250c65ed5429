#!/usr/bin/env python3
"""lowered.py SCRIPT [ARGUMENT...]: runs a tinygrad script with what tinygrad lowered before.

Most of what a short training takes is tinygrad turning its graphs into schedules and these into programs, in Python, and the
suites train the same networks hundreds of times. tinygrad keeps both by what they are made from, within one process; here
the same two tables are kept in its cache on disk (CACHEDB) too, beside what its compiler gave. The script, its programs and
what it asks of the driver are as without it. tinygrad's own tests run without it.
"""
import hashlib, os, runpy, sys
del sys.path[0], sys.argv[0]  # beside this file lies a tinygrad.py of ours
from tinygrad import codegen, schedule
from tinygrad.engine import realize
from tinygrad.helpers import diskcache_get, diskcache_put


class Kept(dict):
    """One of tinygrad's tables; what is not in it is looked up on disk."""

    def __init__(self, name):
        self.name = name

    @staticmethod
    def digest(key):
        return hashlib.sha256(repr(key).encode()).hexdigest()

    def __contains__(self, key):
        if super().__contains__(key):
            return True
        if (made := diskcache_get(self.name, self.digest(key))) is None:
            return False
        super().__setitem__(key, made)
        return True

    def get(self, key, default=None):
        return self[key] if key in self else default

    def __setitem__(self, key, made):
        super().__setitem__(key, made)
        diskcache_put(self.name, self.digest(key), made)


codegen.to_program_cache = realize.to_program_cache = Kept("programs")
schedule.schedule_cache = Kept("schedules")
sys.path.insert(0, os.path.dirname(sys.argv[0]))  # as for the script alone
runpy.run_path(sys.argv[0], run_name="__main__")
