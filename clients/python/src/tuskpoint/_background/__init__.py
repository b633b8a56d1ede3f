"""The steps that `BackgroundSaver` keeps until they are saved. It must not make calls."""
