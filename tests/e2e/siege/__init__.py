"""Every attack at once against a gateway of two workers, while a watched customer goes on chatting."""
