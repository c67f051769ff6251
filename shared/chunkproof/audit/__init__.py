"""Audit a whole collection against a manifest: every byte of every chunk, each chunk in exactly one class.

manifest    entries of a manifest: one JSON line for each chunk that should be stored
sort        sort any number of lines in constant memory
prepare     check a manifest and sort it by point id, the order in which a scan returns points
reader      read a collection in pages or by ids, with read-ahead and retries
findings    compare one expected chunk with one stored point
session     what the phases of a running audit share
scan        compare the manifest with the whole collection, in one pass
match       resolve what the scan left open: chunks on other points, ids on several points, orphans
content     match by text what the ids left over: random ids, the same text under several ids
nearest     match the rest with the nearest text, for the kind of mismatch
near_duplicates   stored texts that are nearly the same
locate      locate chunks in the documents that they were made from
source_coverage   which passages are in no chunk, and which chunks are in no document
absence     check that what was deleted is stored nowhere any more; absence_report is its report
by_id       compare the chunks of a partial manifest, read by their ids
vectors     compare stored vectors with the text embedded again
state       progress on disk, so that an interrupted audit can be resumed
sampling    what a sample says about the whole manifest
report      the report
run         an audit from start to report
shards      an audit in parts, for Lambda: split, audit a shard, merge
"""
