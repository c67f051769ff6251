"""Audit a whole collection against a manifest: every byte of every chunk, each chunk in exactly one class.

manifest_file     manifests: one JSON line for each chunk that should be, or was, stored
snapshot_file     snapshots: manifests that were taken from a collection, to compare with later
ledger            the manifest, what was read and the findings in one SQLite file, so that an audit can be resumed
findings          compare one expected chunk with one stored point
join              compare the manifest with the collection by ids
match_texts       match by text what the ids left over, and find texts that are nearly the same
audit_report      the report, and what a sample says about the whole manifest
audit_run         an audit from start to report, and its check of stored vectors
audit_job         an audit in parts, for Lambda: split, audit a shard, merge
locate            locate chunks in the documents that they were made from
source_coverage   which passages are in no chunk, and which chunks are in no document
absence           check that what was deleted is stored nowhere any more
"""
