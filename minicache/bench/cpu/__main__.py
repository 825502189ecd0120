"""`python -m minicache.bench.cpu`."""

from minicache.bench.cpu import main

raise SystemExit(main())
