"""Why an expected chunk is not among the results: changes that are tried one by one until one brings it back."""
