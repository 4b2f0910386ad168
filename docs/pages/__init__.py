"""Pages that are made from the code: one a scheme, a pass and a target; refusals; where others are faster."""
