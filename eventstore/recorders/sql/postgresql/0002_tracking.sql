-- Schema 2: how far projections of the eventsourcing library have come, written in their own transactions. The token is
-- random: by it a writer whose connection broke at the commit knows its own row.

CREATE TABLE {schema}.tracking (
    application     bytea NOT NULL,
    notification_id bigint NOT NULL,
    token           bigint NOT NULL,
    PRIMARY KEY (application, notification_id)
);
