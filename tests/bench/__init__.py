"""`make bench`: figures as ratios, each against a yardstick that runs in the same minute on the same machine."""
