"""What everything stands on: the bindings of the compiler and of the runtime, the cache, files."""
