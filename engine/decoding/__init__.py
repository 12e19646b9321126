"""Ways to find an answer other than one draw after the other: beams, ranking, drafts that are verified in bulk."""
