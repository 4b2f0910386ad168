"""Pages that are generated from the code: schemes, passes, targets, refusals, known slower cases and others."""
