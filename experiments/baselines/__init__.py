"""The methods that NAGphormer is compared with, one file each."""
