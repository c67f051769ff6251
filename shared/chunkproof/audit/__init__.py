"""Audit a whole collection against a manifest: every byte of every chunk, each chunk in exactly one class.

manifest    what should be stored, a JSON line per chunk
sorting     lines in order, however many, in constant memory
prepare     a manifest, checked and brought into the order that a scan returns points in
reading     pages of a collection, read ahead, with patience for a server in trouble
verdict     one expected chunk against one stored point
scan        the manifest joined with the whole collection, in one pass
settle      what the pass left open: chunks on another point, several points with one id, orphans
pick        the same for a partial manifest, by ids
vectors     stored vectors against the text embedded again
state       where an audit is, so that it can go on after an interruption
summary     the report
runner      all of it, in order
"""
