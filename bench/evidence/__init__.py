"""`python -m bench.evidence`: run all measures and suites, and write the results into docs/.

Everything between `<!-- measured: NAME -->` and `<!-- end -->` in a page comes from one run, which
also draws the pictures. People write the text around the blocks.
"""
