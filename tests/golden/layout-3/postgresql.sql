CREATE SEQUENCE thread_numbers INCREMENT BY 1000;
CREATE TABLE journal_info (
	name TEXT COLLATE "C" NOT NULL, 
	value TEXT COLLATE "C" NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE leases (
	name TEXT COLLATE "C" NOT NULL, 
	owner TEXT COLLATE "C" NOT NULL, 
	fence BIGINT NOT NULL, 
	until_us BIGINT NOT NULL, 
	settings TEXT COLLATE "C" NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE threads (
	number BIGSERIAL NOT NULL, 
	tenant TEXT COLLATE "C" NOT NULL, 
	thread_id TEXT COLLATE "C" NOT NULL, 
	family BIGINT NOT NULL, 
	incarnation BIGINT NOT NULL, 
	seq BIGINT NOT NULL, 
	certified_seq BIGINT NOT NULL, 
	indexed_seq BIGINT NOT NULL, 
	dirty_since_us BIGINT, 
	dirty_bytes BIGINT NOT NULL, 
	unindexed_since_us BIGINT, 
	settings_seq BIGINT NOT NULL, 
	begun_seq BIGINT NOT NULL, 
	compacted_seq BIGINT NOT NULL, 
	deleted BOOLEAN NOT NULL, 
	deleted_through TEXT COLLATE "C" NOT NULL, 
	agent_id TEXT COLLATE "C" NOT NULL, 
	state INTEGER NOT NULL, 
	head_id TEXT COLLATE "C" NOT NULL, 
	created_us BIGINT NOT NULL, 
	updated_us BIGINT NOT NULL, 
	retention_s BIGINT NOT NULL, 
	expire_us BIGINT, 
	unsearchable BOOLEAN NOT NULL, 
	added_bytes BIGINT NOT NULL, 
	removed_bytes BIGINT NOT NULL, 
	checkpoint_count BIGINT NOT NULL, 
	removed_count BIGINT NOT NULL, 
	taken BIGINT NOT NULL, 
	binding BYTEA, 
	PRIMARY KEY (number)
);
CREATE UNIQUE INDEX threads_by_name ON threads (tenant, thread_id);
CREATE INDEX threads_unindexed ON threads (unindexed_since_us) WHERE unindexed_since_us IS NOT NULL;
CREATE INDEX threads_dirty ON threads (tenant, dirty_since_us) WHERE dirty_since_us IS NOT NULL;
CREATE INDEX threads_expiring ON threads (expire_us) WHERE expire_us IS NOT NULL;
CREATE INDEX threads_waiting ON threads (tenant, state, thread_id) WHERE state > 1;
CREATE INDEX threads_by_family ON threads (family);
CREATE INDEX threads_by_agent ON threads (tenant, agent_id, thread_id);
CREATE TABLE changes (
	thread BIGINT NOT NULL, 
	seq BIGINT NOT NULL, 
	incarnation BIGINT NOT NULL, 
	kind INTEGER NOT NULL, 
	checkpoint_ns TEXT COLLATE "C" NOT NULL, 
	checkpoint_id TEXT COLLATE "C" NOT NULL, 
	deleted BIGINT NOT NULL, 
	created_us BIGINT NOT NULL, 
	mac BYTEA, 
	PRIMARY KEY (thread, seq)
);
CREATE TABLE removed (
	thread BIGINT NOT NULL, 
	seq BIGINT NOT NULL, 
	checkpoint_ns TEXT COLLATE "C" NOT NULL, 
	checkpoint_id TEXT COLLATE "C" NOT NULL, 
	incarnation BIGINT NOT NULL, 
	PRIMARY KEY (thread, seq, checkpoint_ns, checkpoint_id)
);
CREATE TABLE checkpoints (
	number BIGSERIAL NOT NULL, 
	tenant TEXT COLLATE "C" NOT NULL, 
	thread BIGINT NOT NULL, 
	checkpoint_ns TEXT COLLATE "C" NOT NULL, 
	checkpoint_id TEXT COLLATE "C" NOT NULL, 
	seq BIGINT NOT NULL, 
	parent_id TEXT COLLATE "C" NOT NULL, 
	state BYTEA NOT NULL, 
	metadata BYTEA NOT NULL, 
	run_id TEXT COLLATE "C" NOT NULL, 
	root_id TEXT COLLATE "C" NOT NULL, 
	delta_channels BYTEA NOT NULL, 
	delta_base BYTEA, 
	label TEXT COLLATE "C" NOT NULL, 
	summary TEXT COLLATE "C" NOT NULL, 
	forked_from TEXT COLLATE "C" NOT NULL, 
	rolled_back_from TEXT COLLATE "C" NOT NULL, 
	adopted_from TEXT COLLATE "C" NOT NULL, 
	created_us BIGINT NOT NULL, 
	held BYTEA, 
	mac BYTEA, 
	PRIMARY KEY (number)
);
CREATE INDEX checkpoints_by_label ON checkpoints (tenant, label) WHERE label != '';
CREATE INDEX checkpoints_descended ON checkpoints (thread) WHERE forked_from != '' OR rolled_back_from != '' OR adopted_from != '';
CREATE UNIQUE INDEX checkpoints_by_key ON checkpoints (thread, checkpoint_ns, checkpoint_id);
CREATE INDEX checkpoints_by_run ON checkpoints (tenant, run_id) WHERE run_id != '';
CREATE INDEX checkpoints_adopted_from ON checkpoints (tenant, adopted_from) WHERE adopted_from != '';
CREATE INDEX checkpoints_by_root ON checkpoints (thread, root_id) WHERE root_id != '';
CREATE INDEX checkpoints_forked_from ON checkpoints (tenant, forked_from) WHERE forked_from != '';
CREATE INDEX checkpoints_by_id ON checkpoints (tenant, checkpoint_id);
CREATE TABLE items (
	thread BIGINT NOT NULL, 
	checkpoint_id TEXT COLLATE "C" NOT NULL, 
	created_us BIGINT NOT NULL, 
	updated_us BIGINT NOT NULL, 
	ttl_us BIGINT NOT NULL, 
	expire_us BIGINT, 
	more INTEGER NOT NULL, 
	PRIMARY KEY (thread, checkpoint_id)
);
CREATE INDEX items_expiring ON items (expire_us) WHERE expire_us IS NOT NULL;
CREATE TABLE writes (
	number BIGSERIAL NOT NULL, 
	thread BIGINT NOT NULL, 
	checkpoint_ns TEXT COLLATE "C" NOT NULL, 
	checkpoint_id TEXT COLLATE "C" NOT NULL, 
	task_id TEXT COLLATE "C" NOT NULL, 
	idx INTEGER NOT NULL, 
	task_path TEXT COLLATE "C" NOT NULL, 
	channel TEXT COLLATE "C" NOT NULL, 
	type TEXT COLLATE "C" NOT NULL, 
	digest BYTEA NOT NULL, 
	size BIGINT NOT NULL, 
	encoding INTEGER NOT NULL, 
	seq BIGINT NOT NULL, 
	early_us BIGINT, 
	mac BYTEA, 
	data BYTEA, 
	PRIMARY KEY (number)
);
CREATE UNIQUE INDEX writes_by_key ON writes (thread, checkpoint_ns, checkpoint_id, task_id, idx);
CREATE INDEX writes_early ON writes (thread) WHERE early_us IS NOT NULL;
CREATE INDEX writes_evicted ON writes (thread) WHERE data IS NULL;
CREATE TABLE contents (
	number BIGSERIAL NOT NULL, 
	family BIGINT NOT NULL, 
	digest BYTEA NOT NULL, 
	type TEXT COLLATE "C" NOT NULL, 
	size BIGINT NOT NULL, 
	encoding INTEGER NOT NULL, 
	keyframe BYTEA, 
	patches INTEGER NOT NULL, 
	patch_bytes BIGINT NOT NULL, 
	thread BIGINT NOT NULL, 
	seq BIGINT NOT NULL, 
	segment BYTEA, 
	data BYTEA, 
	PRIMARY KEY (number)
);
CREATE UNIQUE INDEX contents_by_digest ON contents (family, digest);
CREATE INDEX contents_by_keyframe ON contents (family, keyframe) WHERE keyframe IS NOT NULL;
CREATE INDEX contents_held ON contents (segment) WHERE segment IS NOT NULL;
CREATE INDEX contents_evicted ON contents (family) WHERE data IS NULL;
CREATE TABLE requests (
	tenant TEXT COLLATE "C" NOT NULL, 
	request_id TEXT COLLATE "C" NOT NULL, 
	method TEXT COLLATE "C" NOT NULL, 
	fingerprint BYTEA NOT NULL, 
	answer BYTEA NOT NULL, 
	created_us BIGINT NOT NULL, 
	PRIMARY KEY (tenant, request_id)
);
CREATE INDEX requests_by_time ON requests (created_us);
CREATE TABLE members (
	tenant TEXT COLLATE "C" NOT NULL, 
	sha256 BYTEA NOT NULL, 
	kind TEXT COLLATE "C" NOT NULL, 
	size BIGINT NOT NULL, 
	blob_id TEXT COLLATE "C" NOT NULL, 
	identifier TEXT COLLATE "C" NOT NULL, 
	key BYTEA, 
	parts BYTEA, 
	needs BYTEA, 
	thread BIGINT, 
	incarnation BIGINT, 
	first_seq BIGINT, 
	last_seq BIGINT, 
	digests BYTEA, 
	patched BYTEA, 
	PRIMARY KEY (tenant, sha256)
);
CREATE INDEX segments_by_thread ON members (thread, last_seq) WHERE thread IS NOT NULL;
CREATE INDEX members_by_blob ON members (tenant, blob_id);
CREATE TABLE uses (
	tenant TEXT COLLATE "C" NOT NULL, 
	segment BYTEA NOT NULL, 
	thread BIGINT NOT NULL, 
	PRIMARY KEY (tenant, segment, thread)
);
CREATE INDEX uses_by_thread ON uses (thread);
CREATE TABLE holes (
	number BIGSERIAL NOT NULL, 
	tenant TEXT COLLATE "C" NOT NULL, 
	thread BIGINT NOT NULL, 
	checkpoint_ns TEXT COLLATE "C" NOT NULL, 
	checkpoint_id TEXT COLLATE "C" NOT NULL, 
	seq BIGINT NOT NULL, 
	segment BYTEA, 
	reason TEXT COLLATE "C" NOT NULL, 
	size BIGINT NOT NULL, 
	retry_us BIGINT NOT NULL, 
	PRIMARY KEY (number)
);
CREATE INDEX holes_by_tenant ON holes (tenant, retry_us);
CREATE INDEX holes_by_thread ON holes (thread);
CREATE TABLE blobs (
	tenant TEXT COLLATE "C" NOT NULL, 
	blob_id TEXT COLLATE "C" NOT NULL, 
	object_id TEXT COLLATE "C" NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	billed_bytes BIGINT NOT NULL, 
	cost BIGINT NOT NULL, 
	epoch BIGINT, 
	end_epoch BIGINT, 
	stored_us BIGINT NOT NULL, 
	expire_us BIGINT, 
	PRIMARY KEY (tenant, blob_id)
);
CREATE INDEX blobs_by_expiry ON blobs (tenant, expire_us);
CREATE TABLE catalogs (
	tenant TEXT COLLATE "C" NOT NULL, 
	generation BIGINT NOT NULL, 
	number BIGINT NOT NULL, 
	sha256 BYTEA NOT NULL, 
	content BYTEA NOT NULL, 
	root BYTEA, 
	certified_us BIGINT NOT NULL, 
	PRIMARY KEY (tenant)
);
CREATE TABLE packs (
	number BIGSERIAL NOT NULL, 
	tenant TEXT COLLATE "C" NOT NULL, 
	spool TEXT COLLATE "C" NOT NULL, 
	plan BYTEA NOT NULL, 
	created_us BIGINT NOT NULL, 
	PRIMARY KEY (number)
);
CREATE INDEX packs_by_tenant ON packs (tenant, number);
CREATE TABLE flush_requests (
	tenant TEXT COLLATE "C" NOT NULL, 
	asked BIGINT NOT NULL, 
	all_asked BIGINT NOT NULL, 
	all_tried BIGINT NOT NULL, 
	outcome TEXT COLLATE "C" NOT NULL, 
	trouble TEXT COLLATE "C" NOT NULL, 
	trouble_us BIGINT, 
	failing BIGINT NOT NULL, 
	PRIMARY KEY (tenant)
);
CREATE TABLE handoffs (
	tenant TEXT COLLATE "C" NOT NULL, 
	sha256 BYTEA NOT NULL, 
	thread BIGINT NOT NULL, 
	checkpoint_ns TEXT COLLATE "C" NOT NULL, 
	checkpoint_id TEXT COLLATE "C" NOT NULL, 
	seq BIGINT NOT NULL, 
	content_seq BIGINT NOT NULL, 
	created_us BIGINT NOT NULL, 
	PRIMARY KEY (tenant, sha256, thread)
);
CREATE INDEX handoffs_by_thread ON handoffs (thread);
CREATE TABLE search_documents (
	number BIGSERIAL NOT NULL, 
	tenant TEXT COLLATE "C" NOT NULL, 
	thread BIGINT NOT NULL, 
	seq BIGINT NOT NULL, 
	planned BOOLEAN NOT NULL, 
	truncated BOOLEAN NOT NULL, 
	pointer BYTEA NOT NULL, 
	unembedded BOOLEAN NOT NULL, 
	PRIMARY KEY (number)
);
CREATE INDEX search_documents_truncated ON search_documents (tenant) WHERE truncated;
CREATE INDEX search_documents_by_pointer ON search_documents (tenant, pointer);
CREATE INDEX search_documents_unembedded ON search_documents (number) WHERE unembedded;
CREATE TABLE search_text (rowid BIGINT PRIMARY KEY, scope TEXT NOT NULL, summary TEXT NOT NULL, body TEXT NOT NULL, words TSVECTOR NOT NULL);
CREATE INDEX search_text_words ON search_text USING gin (words);
CREATE TEXT SEARCH DICTIONARY tuskpoint_stems (TEMPLATE = snowball, LANGUAGE = english);
CREATE TEXT SEARCH CONFIGURATION tuskpoint (COPY = simple);
ALTER TEXT SEARCH CONFIGURATION tuskpoint ALTER MAPPING FOR asciiword, word WITH tuskpoint_stems;
CREATE TABLE search_vectors (
	number BIGSERIAL NOT NULL, 
	tenant TEXT COLLATE "C" NOT NULL, 
	thread BIGINT NOT NULL, 
	checkpoint_ns TEXT COLLATE "C" NOT NULL, 
	checkpoint_id TEXT COLLATE "C" NOT NULL, 
	embedder TEXT COLLATE "C" NOT NULL, 
	vector BYTEA NOT NULL, 
	PRIMARY KEY (number)
);
CREATE UNIQUE INDEX search_vectors_by_checkpoint ON search_vectors (thread, checkpoint_ns, checkpoint_id);
CREATE INDEX search_vectors_by_tenant ON search_vectors (tenant);
CREATE TABLE search_memories (
	number BIGSERIAL NOT NULL, 
	tenant TEXT COLLATE "C" NOT NULL, 
	pointer BYTEA NOT NULL, 
	text TEXT COLLATE "C" NOT NULL, 
	digest BYTEA NOT NULL, 
	state INTEGER NOT NULL, 
	unsure BOOLEAN NOT NULL, 
	attempts INTEGER NOT NULL, 
	due_us BIGINT NOT NULL, 
	job_id TEXT COLLATE "C" NOT NULL, 
	blob_id TEXT COLLATE "C" NOT NULL, 
	created_us BIGINT NOT NULL, 
	PRIMARY KEY (number)
);
CREATE UNIQUE INDEX search_memories_by_pointer ON search_memories (tenant, pointer, digest);
CREATE INDEX search_memories_unsure ON search_memories (due_us) WHERE unsure;
CREATE INDEX search_memories_by_state ON search_memories (state, due_us, tenant);
