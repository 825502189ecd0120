"""The named cases of each exercise, a module a lesson. Imported only in the judge's process."""
