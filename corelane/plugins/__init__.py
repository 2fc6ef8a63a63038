"""The plugins that come with Corelane, each a package with a README; ``corelane.plugin`` says what one may give."""
