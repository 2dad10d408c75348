"""The ``mlgo-corpus`` command, which imports nothing before Ctrl-C is handled: the verbs' imports take 0.2 seconds."""


def main() -> None:
    """Run the command line."""
    try:
        from mlgo_corpus.cli.main import main

        main()
    except KeyboardInterrupt:  # verbs handle their own
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
