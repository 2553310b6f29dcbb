"""kafka-dump-log's lines: `plain` is the definition, the other modules its bulk twins."""
