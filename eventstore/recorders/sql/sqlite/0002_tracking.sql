-- Schema 2: how far projections of the eventsourcing library have come, written in their own transactions.

CREATE TABLE tracking (
    application     TEXT NOT NULL,
    notification_id INTEGER NOT NULL,
    PRIMARY KEY (application, notification_id)
) STRICT, WITHOUT ROWID;
