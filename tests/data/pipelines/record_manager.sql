BEGIN TRANSACTION;
CREATE TABLE upsertion_record (
	uuid VARCHAR NOT NULL, 
	"key" VARCHAR, 
	namespace VARCHAR NOT NULL, 
	group_id VARCHAR, 
	updated_at FLOAT, 
	PRIMARY KEY (uuid), 
	CONSTRAINT uix_key_namespace UNIQUE ("key", namespace)
);
INSERT INTO "upsertion_record" VALUES('86d221c2-fe9c-4bec-9886-90b210351130','02db9c37-c5f6-59c7-9acc-6b753b4fa9bc','qdrant/indexed','https://docs.example.com/papers/hybrid-search.pdf',1.79489346273398542403e+09);
INSERT INTO "upsertion_record" VALUES('a5b6eef3-62ae-44e0-9766-14b18b90c1de','492f2f02-69be-513e-a75c-0a20836ca160','qdrant/indexed','https://docs.example.com/vector-databases/getting-started?lang=en#points',1.79489346273398542403e+09);
INSERT INTO "upsertion_record" VALUES('a383ed1c-9cac-4603-ae16-6764149d994a','4e2fd672-2131-5abe-be22-34af84441b7c','qdrant/indexed','https://docs.example.com/robots/navigation',1.79489346273398542403e+09);
INSERT INTO "upsertion_record" VALUES('774ab855-7ffc-4741-bc1f-a520047c43ec','19228b9e-7fdb-55d3-ab50-14e88c914e10','qdrant/indexed','https://docs.example.com/robots/navigation',1.79489346273398542403e+09);
INSERT INTO "upsertion_record" VALUES('8dbd5379-8293-42a2-86c3-45062f90f99c','92b40a8c-36bb-5750-b630-e6138d4bcd96','qdrant/indexed','https://docs.example.com/papers/hybrid-search.pdf',1.79489346273398542403e+09);
INSERT INTO "upsertion_record" VALUES('b4ed6379-3e1c-4b79-8baa-38f175e864c6','5194d42f-5b47-5e77-9881-bb3b7825ea64','qdrant/indexed','https://docs.example.com/vector-databases/getting-started?lang=en#points',1.79489346273398542403e+09);
CREATE INDEX ix_upsertion_record_namespace ON upsertion_record (namespace);
CREATE INDEX ix_upsertion_record_key ON upsertion_record ("key");
CREATE INDEX ix_upsertion_record_group_id ON upsertion_record (group_id);
CREATE INDEX ix_upsertion_record_updated_at ON upsertion_record (updated_at);
CREATE INDEX ix_key_namespace ON upsertion_record ("key", namespace);
CREATE INDEX ix_upsertion_record_uuid ON upsertion_record (uuid);
COMMIT;
