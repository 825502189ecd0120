"""The named cases, a module an exercise. Imported only in the judge's process."""
