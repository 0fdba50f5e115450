"""The append-only record of a run: a JSONL file that is readable up to its last event, whatever ended the run."""

from chaos.journal.campaign import CampaignFolder, Record
from chaos.journal.folder import RunFolder
from chaos.journal.reader import Journal, read_journal
from chaos.journal.writer import JournalWriter

__all__ = ["CampaignFolder", "Journal", "JournalWriter", "Record", "RunFolder", "read_journal"]
