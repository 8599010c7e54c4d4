-- Schema 3: an epoch is right for one timeline of one server. A server that was restored from a backup, or promoted, counts its
-- transactions from where that backup or standby ends, so it may give numbers again that its predecessor gave.

ALTER TABLE {schema}.epoch ADD COLUMN timeline bigint;

-- Null on a standby, and where the server does not tell.
CREATE FUNCTION {schema}.timeline() RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $timeline$
BEGIN
    IF pg_is_in_recovery() THEN
        RETURN NULL;
    END IF;
    RETURN ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint;
EXCEPTION
    WHEN feature_not_supported OR insufficient_privilege THEN
        RETURN NULL;
END
$timeline$;

-- Go on above all positions that were ever given, if this is another server, or another timeline, than the epoch is right for. It
-- leaves room for positions that were given after the backup was made: 2^28 transactions, and 2^14 for each second that has
-- passed since its newest event. The roles of agents may not change the table, so this runs with the rights of its owner; it
-- takes nothing from its caller.
CREATE FUNCTION {schema}.begin_epoch() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $begin_epoch$
DECLARE
    here bigint := (SELECT system_identifier FROM pg_control_system());
    now_on bigint := {schema}.timeline();
    highest bigint;
    idle_s bigint;
BEGIN
    PERFORM FROM {schema}.epoch FOR UPDATE;
    SELECT greatest(
            (SELECT max(position) >> 20 FROM {schema}.events),
            (SELECT max(first_position) >> 20 FROM {schema}.publications),
            0),
        (SELECT extract(epoch FROM clock_timestamp())::bigint - recorded_at / 1000000 FROM {schema}.events
         WHERE position IS NOT NULL ORDER BY position DESC LIMIT 1)
    INTO highest, idle_s;
    UPDATE {schema}.epoch
    SET cluster = here, timeline = coalesce(now_on, timeline),
        epoch = greatest(epoch, highest) + (1::bigint << 28)
            + least(greatest(coalesce(idle_s, 0), 0) << 14, 1::bigint << 38)
    WHERE cluster <> here OR timeline <> now_on
        OR highest >= epoch + pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
    UPDATE {schema}.epoch SET timeline = now_on WHERE timeline IS NULL;
END
$begin_epoch$;

SELECT {schema}.begin_epoch();

-- An older version knows nothing of timelines: beside one that begins an epoch it would go on in the one before.
UPDATE {schema}.store SET value = '3' WHERE name = 'readable_by';
