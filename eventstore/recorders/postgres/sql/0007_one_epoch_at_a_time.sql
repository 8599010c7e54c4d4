-- An epoch begins only if the store still needs one when nobody else begins one. The earlier function read the next
-- transaction number before it waited, and the newest position afterwards. Whoever had begun an epoch meanwhile wrote with
-- higher numbers, so the function began one more epoch beside these writers, and followers passed what they still wrote.
-- Programs that know earlier schemas call the function too. After the wait, one statement reads everything, because the
-- number and the positions have to be of one snapshot.
CREATE OR REPLACE FUNCTION {schema}.begin_epoch() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $begin_epoch$
DECLARE
    here bigint;
    now_on bigint;
    highest bigint;
    idle_s bigint;
    is_needed boolean;
BEGIN
    PERFORM FROM {schema}.epoch FOR UPDATE;
    SELECT s.here, s.now_on, s.highest, s.idle_s,
        s.cluster <> s.here OR s.timeline <> s.now_on OR s.highest >= s.epoch + s.next_xid
    INTO here, now_on, highest, idle_s, is_needed
    FROM (
        SELECT e.cluster, e.timeline, e.epoch, {schema}.here() AS here, {schema}.timeline() AS now_on,
            pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_xid,
            greatest(
                (SELECT max(position) >> 20 FROM {schema}.events),
                (SELECT max(first_position) >> 20 FROM {schema}.publications),
                0) AS highest,
            (SELECT extract(epoch FROM clock_timestamp())::bigint - ('x' || encode(substring(meta FROM 17 FOR 8), 'hex'))::bit(64)::bigint / 1000000 FROM {schema}.events
             WHERE position IS NOT NULL ORDER BY position DESC LIMIT 1) AS idle_s
        FROM {schema}.epoch e
    ) s;
    IF is_needed THEN
        UPDATE {schema}.epoch
        SET cluster = here, timeline = coalesce(now_on, timeline),
            epoch = greatest(epoch, highest) + (1::bigint << 28)
                + least(greatest(coalesce(idle_s, 0), 0) << 14, 1::bigint << 38);
    END IF;
    UPDATE {schema}.epoch SET timeline = now_on WHERE timeline IS NULL;
END
$begin_epoch$;
